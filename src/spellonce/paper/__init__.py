"""The paper's tables and figures: what is published, what we train for them, what is written."""
