"""Rules that people write, as soft patterns whose arcs are sure."""
