package backend

// ShellCommand is the command line that runs a line of shell in a sandbox: by bash, which agents
// write for, if the sandbox has it. The line is an argument, so nothing of it is read twice.
func ShellCommand(line string) []string {
	const choose = `command -v bash >/dev/null 2>&1 && exec bash -c "$1"; exec sh -c "$1"`
	return []string{"/bin/sh", "-c", choose, "sh", line}
}
