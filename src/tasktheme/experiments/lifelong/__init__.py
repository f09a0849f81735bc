"""Lifelong meta-learning, the paper's application: a pool of tasks, one pick at a time, policies side by side.

At each step every arm (a policy and a seed) picks a task of its pool, learns from it, discards it and gets a fresh one.
"""
