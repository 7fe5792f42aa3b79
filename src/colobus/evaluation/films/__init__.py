"""Films of games: screens that show pictures, players, grids of games, files."""
