"""The moves: what can be changed in a start, what that saves and costs, and against which causes it helps."""
