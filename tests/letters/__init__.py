"""Dead letters: what they hold, and each sink that keeps them."""
