"""How ids look: their bits, their text, the known formats, and which of them an id may be of."""
