"""Reports for people: pages that stand alone, without network."""
