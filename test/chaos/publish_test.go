package chaos_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/agentfense/agentfense/test/harness"
)

// publishedPort is the port inside that the host sees.
const publishedPort = 3000

// publish has a server inside be reached at its published port while something is struck, most
// often the egress process: the port then works again, as long as the server lives. Nothing listens
// on the host when the sandbox has ended, whatever was killed.
func (w *world) publish() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), verbLimit)
	defer cancel()
	cmd, _, stderr := w.command(ctx, w.script(fmt.Sprintf("exec python3 -m http.server --bind 127.0.0.1 --directory /opt %d >/dev/null 2>&1", publishedPort))...)
	if err := cmd.Start(); err != nil {
		w.fatal("serve inside: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if !w.answersUnless(ended) {
		w.fatal("the published port %s does not answer, and nothing was struck: %s", w.ids.address(), stderr)
	}
	if w.random.IntN(2) > 0 {
		w.target = harness.Egress
	}
	w.blow(cmd.Process.Pid)
	w.target = ""
	if !w.answersUnless(ended) && w.struck == harness.Egress {
		w.fatal("the egress process was struck, and the server inside has ended: %s", stderr)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	w.settle()
	for deadline := time.Now().Add(leftPatience); ; time.Sleep(10 * time.Millisecond) { // of a killed supervisor's processes
		c, err := net.Dial("tcp4", w.ids.address())
		if err != nil {
			return
		}
		c.Close()
		if time.Now().After(deadline) {
			w.fatal("the published port %s is open, and the sandbox has ended", w.ids.address())
		}
	}
}

// answersUnless waits until the published port answers, and returns false if the server inside ends
// before.
func (w *world) answersUnless(ended chan error) bool {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(verbLimit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if r, err := client.Get("http://" + w.ids.address() + "/"); err == nil {
			r.Body.Close()
			return true
		}
		select {
		case err := <-ended:
			ended <- err
			return false
		default:
		}
	}
	w.fatal("the published port %s does not answer, and the server inside runs", w.ids.address())
	return false
}
