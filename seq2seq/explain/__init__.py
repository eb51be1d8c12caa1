"""What attention does, shown: numbers, pictures, steps."""
