"""What a SEG-Y survey is, judged from one pass over its files before a byte is converted."""
