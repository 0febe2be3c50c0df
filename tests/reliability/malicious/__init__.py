"""Files from strangers that would run code or leave their folder if they were trusted.

Each is given to the product's own loader, which must refuse it in one line.
"""
