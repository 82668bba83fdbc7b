package gitconfig

// openFlags are none: a file of Windows is neither a FIFO nor a terminal.
const openFlags = 0
