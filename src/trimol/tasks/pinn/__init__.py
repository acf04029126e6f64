"""Physics-informed networks: equations that a network has to satisfy, as tasks.

Each is trained on points alone, by the squares of what the equation, the initial values and the
borders leave over, and is judged by a solution that is exact, or computed here to many digits.
Loaded when one of them is asked for.
"""
