"""Web services: the review app, where people rule on cases, and endpoints where a trained team answers."""
