"""Take requests as all endpoints share them: read, parsed, checked, made into the engine's."""
