"""What the gfx11 code costs, read from the compiler's output, beside what it may cost."""
