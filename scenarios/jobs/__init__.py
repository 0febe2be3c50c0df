"""Whole jobs: one family per role that asks the role's whole question, exactly and with graded parts."""
