"""The review app: people rule on plans that wait at the gate, and judge the team's answers, in the browser.

Belongs here: pages, sessions of reviewers, checks of web requests.
Not here: what a ruling needs to count (simulator/governance/gate) and what labels are (training/feedback).
"""
