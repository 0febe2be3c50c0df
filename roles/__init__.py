"""Who speaks: each role's mandate, strict answer schema and tool signatures. No torch, no langgraph."""
