"""The programs of other frameworks with which `launch.benchmark` compares tff_ssl.

They run in an environment of their own, because their packages conflict with TFF's.
"""
