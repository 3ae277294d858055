"""Which servers, waits and builders do the tests share?"""
