"""Pictures and pages: they read results, they never train."""
