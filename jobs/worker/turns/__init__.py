"""How does a worker carry out a chat turn, at first and in the background?"""
