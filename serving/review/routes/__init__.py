"""The app's routes, by what they are about."""
