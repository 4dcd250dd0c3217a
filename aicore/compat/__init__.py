"""Stand-ins that let code written for other runtimes run on aicore unchanged."""
