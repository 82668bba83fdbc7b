package script_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/store"
	"github.com/agentfense/agentfense/test/wire"
)

// TestServeStories runs the stories of the server. They have further commands:
//
//	serve [NAME=VALUE...]               start a server: $GRPC, $URL and $TOKEN say where it is
//	unserve [kill]                      end it
//	token VARIABLE OWNER SCOPES         make a token
//	grpc CODE CALL [FIELD...]           a call over gRPC; stdout is the answers as JSON, one a line,
//	                                    or the message of its error (wire.Messages has the fields)
//	rest STATUS VERB PATH [FIELD...|@FILE|-]  a request of REST; stdout is its body
//	field PATH TEXT                     what stands in the last answer at the path, a line feed as \n
//	keep VARIABLE PATH                  keep it
//
// To run in the background, grpc and rest are arguments of a program, which
// writes into a file too what it gets:
//
//	exec wire FILE grpc|rest ...        as grpc and rest
//	await FILE TEXT                     wait until the file has the text
func TestServeStories(t *testing.T) {
	testenv.FUSE(t)
	testenv.Bwrap(t)
	run(t, "testdata/serve")
}

// serverCommands are the further commands.
var serverCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"serve":   cmdServe,
	"unserve": cmdUnserve,
	"token":   cmdToken,
	"grpc":    inProcess(callGRPC),
	"rest":    inProcess(callREST),
	"field":   cmdField,
	"keep":    cmdKeep,
	"await":   cmdAwait,
}

// programs are those that exec starts.
var programs = map[string]func(){"wire": func() {
	calls := map[string]func(caller, []string) error{"grpc": callGRPC, "rest": callREST}
	copied, err := os.Create(os.Args[1])
	if err == nil {
		err = calls[os.Args[2]](caller{getenv: os.Getenv, read: os.ReadFile, stdout: io.MultiWriter(os.Stdout, copied)}, os.Args[3:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}}

// caller is what a command is told and answers to.
type caller struct {
	getenv func(string) string
	read   func(string) ([]byte, error)
	stdout io.Writer
}

const callTimeout = time.Minute

func inProcess(call func(caller, []string) error) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("the code that is expected is its first argument")
		}
		ts.Check(call(caller{
			getenv: ts.Getenv,
			read:   func(path string) ([]byte, error) { return os.ReadFile(ts.MkAbs(path)) },
			stdout: ts.Stdout(),
		}, args))
	}
}

// callGRPC is the command grpc.
func callGRPC(c caller, args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: grpc CODE CALL [FIELD...]")
	}
	call, err := wire.Call(args[1])
	if err != nil {
		return err
	}
	requests, err := wire.Messages(args[2:], c.read)
	if err != nil {
		return err
	}
	client, err := wire.Dial(c.getenv("GRPC"), c.getenv("TOKEN"))
	if err != nil {
		return err
	}
	defer client.Conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	err = client.Do(ctx, call, requests, func(answer string) error {
		_, err := fmt.Fprintln(c.stdout, answer)
		return err
	})
	if err != nil {
		fmt.Fprintln(c.stdout, status.Convert(err).Message())
	}
	if got := codeName(status.Code(err)); got != args[0] {
		return fmt.Errorf("%s: %s, want %s: %w", args[1], got, args[0], err)
	}
	return nil
}

// codeName is how WIRE and gRPC's documents write a code: NOT_FOUND.
func codeName(c codes.Code) string {
	if c == codes.OK {
		return "OK"
	}
	var b strings.Builder
	for i, r := range c.String() {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}

// callREST is the command rest.
func callREST(c caller, args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("usage: rest STATUS VERB PATH [FIELD...|@FILE|-]")
	}
	var body []byte
	switch rest := args[3:]; {
	case len(rest) == 1 && rest[0] == "-":
	case len(rest) == 1 && strings.HasPrefix(rest[0], "@"):
		var err error
		if body, err = c.read(rest[0][1:]); err != nil {
			return err
		}
	case len(rest) > 0:
		messages, err := wire.Messages(rest, c.read)
		if err != nil {
			return err
		}
		body = []byte(messages[0])
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	answer, err := wire.REST{URL: c.getenv("URL"), Token: c.getenv("TOKEN")}.Stream(ctx, args[1], args[2], bytes.NewReader(body), c.stdout)
	if err != nil {
		return err
	}
	if got := strconv.Itoa(answer.Status); got != args[0] {
		return fmt.Errorf("%s %s: status %s, want %s", args[1], args[2], got, args[0])
	}
	return nil
}

func cmdField(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: field PATH TEXT")
	}
	got, err := wire.Find(ts.ReadFile("stdout"), args[0])
	ts.Check(err)
	if got = strings.ReplaceAll(got, "\n", `\n`); (got == args[1]) == neg {
		ts.Fatalf("%s is %q", args[0], got)
	}
}

func cmdKeep(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 || neg {
		ts.Fatalf("usage: keep VARIABLE PATH")
	}
	got, err := wire.Find(ts.ReadFile("stdout"), args[1])
	ts.Check(err)
	ts.Setenv(args[0], got)
}

func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 || neg {
		ts.Fatalf("usage: await FILE TEXT")
	}
	for deadline := time.Now().Add(callTimeout); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if strings.Contains(string(text), args[1]) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s does not come: %q, %v", args[1], text, err)
		}
	}
}

// cmdToken issues a token as the server's own state has it.
func cmdToken(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 || neg {
		ts.Fatalf("usage: token VARIABLE OWNER SCOPES")
	}
	scopes, err := store.ParseScopes(args[2])
	ts.Check(err)
	db, err := store.Open(context.Background(), filepath.Join(ts.Getenv("AGENTFENSE_HOME"), "server.db"), store.Options{})
	ts.Check(err)
	defer db.Close()
	token, err := auth.Issue(context.Background(), db, auth.Grant{Name: strings.Join(args, " "), Owner: args[1], Scopes: scopes}, time.Now())
	ts.Check(err)
	ts.Setenv(args[0], token)
}
