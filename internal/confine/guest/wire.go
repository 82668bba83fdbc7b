package guest

import (
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// kind is the first byte of a message. Numbers are little endian.
type kind byte

const (
	// From PID 1.
	msgReady   kind = iota + 1 // u32 errno: it runs; why it does not report attempts, or 0
	msgEnded                   // u32 exec: its leader and all descendants have ended
	msgRefuse                  // u32 exec, u32 errno: no leader could be started
	msgAttempt                 // u32 family, u32 type, u32 protocol, u32 count, name of the program: refused sockets
	msgSettled                 // all attempts until msgSettle are reported

	// From a leader.
	msgHello   // it waits for its command
	msgStarted // the command runs
	msgFailed  // u8 stage, u32 errno: the command did not start
	msgExited  // u32 wait status, u64 user and u64 system microseconds, u64 KiB
	msgAnswer  // u32 and u32 as stated at the request, then u32 errno
	msgIdle    // no process of the exec is left; the leader waits for another command

	// To PID 1.
	msgSpawn  // u32 exec, u8 mask of streams; with the leader's socket and the streams
	msgSettle // it answers with msgSettled

	// To a leader.
	msgCommand // a piece of the encoded command; the last is shorter than pieceBytes
	msgSignal  // u32 signal, for the foreground process group
	msgWake    // u8 mask of streams, with the streams: another command follows; the leader sends msgHello again

	// To a leader, which answers each with msgAnswer.
	msgGrant     // with three pipes; answer: the holder's pid, its start time
	msgRevoke    // ends the holder
	msgInterrupt // u32 signal for the command itself or 0, u32 signal for processes newer than the lease; answer: their number
)

// maxIncoming is above the size of any valid message from inside, in bytes.
const maxIncoming = 64

// pieceBytes is how much of a command one message carries: well below what a
// socket buffer holds (net.core.wmem_default).
const pieceBytes = 32 << 10

// stage says which step of starting a command failed.
type stage byte

const (
	stageDirectory stage = iota + 1 // chdir to Command.Dir
	stageTerminal                   // open of /dev/pts/N
	stageLookup                     // search in PATH
	stageExec                       // fork or execve
)

// errProtocol means that the peer violated the protocol.
var errProtocol = errors.New("message breaks the protocol")

func encode(k kind, fields ...uint32) []byte {
	b := []byte{byte(k)}
	for _, f := range fields {
		b = binary.LittleEndian.AppendUint32(b, f)
	}
	return b
}

// decode returns the fields of a message that must be of kind k, with exactly
// n of them.
func decode(b []byte, k kind, n int) ([]uint32, error) {
	if len(b) != 1+4*n || kind(b[0]) != k {
		return nil, errProtocol
	}
	fields := make([]uint32, n)
	for i := range fields {
		fields[i] = binary.LittleEndian.Uint32(b[1+4*i:])
	}
	return fields, nil
}

// answer is a leader's answer to a request.
type answer struct {
	first, second uint32
	errno         unix.Errno
}

func decodeAnswer(b []byte) (answer, error) {
	fields, err := decode(b, msgAnswer, 3)
	if err != nil {
		return answer{}, err
	}
	return answer{first: fields[0], second: fields[1], errno: unix.Errno(fields[2])}, nil
}

func kindOf(b []byte) kind {
	if len(b) == 0 {
		return 0
	}
	return kind(b[0])
}

// encodeExited reports a wait status with the resources used.
func encodeExited(status unix.WaitStatus, usage *unix.Rusage) []byte {
	b := encode(msgExited, uint32(status))
	for _, v := range []int64{usage.Utime.Nano() / 1000, usage.Stime.Nano() / 1000, usage.Maxrss} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func decodeExited(b []byte) (Exit, error) {
	if len(b) != 1+4+3*8 || kind(b[0]) != msgExited {
		return Exit{}, errProtocol
	}
	var exit Exit
	switch status := unix.WaitStatus(binary.LittleEndian.Uint32(b[1:])); {
	case status.Exited():
		exit.Code = status.ExitStatus()
	case status.Signaled():
		exit.Signal = int(status.Signal())
	default:
		return Exit{}, errProtocol
	}
	const (
		maxMicroseconds = uint64(1<<63-1) / uint64(time.Microsecond)
		maxKiB          = uint64(1<<63-1) >> 10
	)
	number := func(i int, limit uint64) int64 {
		return int64(min(binary.LittleEndian.Uint64(b[5+8*i:]), limit))
	}
	exit.UserTime = time.Duration(number(0, maxMicroseconds)) * time.Microsecond
	exit.SystemTime = time.Duration(number(1, maxMicroseconds)) * time.Microsecond
	exit.MaxRSSBytes = number(2, maxKiB) << 10
	return exit, nil
}

// encodeCommand encodes c without its files: terminal, mask, ReuseLeader, directory,
// arguments, environment. A list has its length before it.
func encodeCommand(c Command) []byte {
	reuse := uint32(0)
	if c.ReuseLeader {
		reuse = 1
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(int32(c.TTY)))
	b = binary.LittleEndian.AppendUint32(b, uint32(c.Umask))
	b = binary.LittleEndian.AppendUint32(b, reuse)
	b = appendString(b, c.Dir)
	for _, list := range [][]string{c.Argv, c.Env} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(list)))
		for _, s := range list {
			b = appendString(b, s)
		}
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

func decodeCommand(b []byte) (Command, error) {
	r := reader{rest: b}
	c := Command{TTY: int(int32(r.number())), Umask: int(r.number()), ReuseLeader: r.number() != 0, Dir: r.text()}
	c.Argv, c.Env = r.list(), r.list()
	if r.failed || len(r.rest) != 0 || len(c.Argv) == 0 {
		return Command{}, errProtocol
	}
	return c, nil
}

// reader reads values from a message. After a failure it returns zero values.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) number() uint32 {
	if r.failed || len(r.rest) < 4 {
		r.failed = true
		return 0
	}
	n := binary.LittleEndian.Uint32(r.rest)
	r.rest = r.rest[4:]
	return n
}

func (r *reader) text() string {
	n := r.number()
	if r.failed || uint64(n) > uint64(len(r.rest)) {
		r.failed = true
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *reader) list() []string {
	n := r.number()
	if r.failed || uint64(n) > uint64(len(r.rest))/4 {
		r.failed = true
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = r.text()
	}
	return list
}
