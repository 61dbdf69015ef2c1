"""Other frameworks' programs that `launch.benchmark` measures ours against.

They run in an environment of their own, whose packages cannot live beside TFF's.
"""
