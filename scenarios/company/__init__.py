"""One company before one decision: options, what each seat can fund on them, one budget.

Belongs here: the case, the four seats' structures with exact analyses, the optimum by two methods.
Not here: who sees what and what a role may answer (the families).
"""
