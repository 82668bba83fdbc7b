package policy

// CompileAnew is Compile without its memory.
var CompileAnew = compile
