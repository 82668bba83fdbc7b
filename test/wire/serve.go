package wire

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Server is a running `agentfense serve`.
type Server struct {
	Cmd   *exec.Cmd
	Addr  string // of gRPC
	URL   string // of REST
	Token string // the default one
}

var errNoAddress = errors.New("that is no address")

// AnyPorts has a server listen at ports that the kernel chooses.
var AnyPorts = []string{"AGENTFENSE_SERVER_GRPC_ADDR=127.0.0.1:0", "AGENTFENSE_SERVER_HTTP_ADDR=127.0.0.1:0"}

// Serve starts cmd, which is to serve gRPC and REST on the state directory home,
// and returns when it does. On an error there is a Server if
// the command was started.
func Serve(cmd *exec.Cmd, home string) (*Server, error) {
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &Server{Cmd: cmd}
	said := bufio.NewReader(stdout)
	for _, face := range []struct {
		name string
		addr *string
	}{{"grpc", &s.Addr}, {"http", &s.URL}} {
		line, err := said.ReadString('\n')
		addr, ok := strings.CutPrefix(strings.TrimSpace(line), face.name+" ")
		if !ok {
			return s, fmt.Errorf("the server said %q: %w", line, cmp.Or(err, errNoAddress))
		}
		*face.addr = addr
	}
	s.URL = "http://" + s.URL
	token, err := os.ReadFile(filepath.Join(home, "token"))
	s.Token = strings.TrimSpace(string(token))
	return s, err
}
