"""Measures ytp against the peers that a user would pick and against what the machine allows.

python -m bench              all goals and growth series, report into docs/performance
python -m bench --quick      everything once and small: does the benchmark itself still work?
python -m bench --goals 1,6  some of them

Figures of a machine move with its load; so a goal is a ratio, measured with all contestants one after the
other in the same run, several times, and the median counts.
"""
