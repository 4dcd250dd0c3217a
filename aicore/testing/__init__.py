"""What tests of aicore and of its plugins share."""
