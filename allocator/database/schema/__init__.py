"""The tables, their check, their upgrade, and what an operator adds to them: rights and the guard."""
