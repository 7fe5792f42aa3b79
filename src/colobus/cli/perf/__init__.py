"""How fast training is and where its time goes."""
