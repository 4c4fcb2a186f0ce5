"""The Relax front end: functions of a module are read into the vocabulary, and what tinyai takes of
them is cut out; its machine code goes to ``RunCodegen``."""
