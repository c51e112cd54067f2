"""A synthetic world of moving shapes: scenes, their pictures, and questions about them. numpy only, pure, seeded."""
