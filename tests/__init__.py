"""What proves that the product does what it says?"""
