"""Games: the Atari vector environment, one Atari game at a time, and Catch."""
