package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// asker answers what a sandbox asks while a command runs: by a hook, else by the person at the
// terminal, if there is one.
type asker struct {
	e      *env
	b      backend.Backend
	sb     backend.Sandbox
	hook   string
	prompt prompt // nil without a terminal
	by     string // who answers there, for the audit log

	waiting map[string]context.CancelFunc // by the id of an ask
	order   chan putAsk
}

// prompt puts a question to a person. It is false if the question is over before there is an
// answer.
type prompt func(ctx context.Context, name string, a api.Ask) (api.Answer, bool)

// putAsk is an ask that waits for the person.
type putAsk struct {
	ctx context.Context //nolint:containedctx // of the question
	ask api.Ask
}

// maxQuestions bounds the questions that wait for the person. The supervisor asks fewer at once.
const maxQuestions = 64

func newAsker(e *env, b backend.Backend, sb backend.Sandbox, hook string, prompt prompt) *asker {
	return &asker{
		e: e, b: b, sb: sb, hook: hook, prompt: prompt, by: "terminal",
		waiting: map[string]context.CancelFunc{}, order: make(chan putAsk, maxQuestions),
	}
}

// startAsker answers until the returned function is called.
func (e *env) startAsker(ctx context.Context, b backend.Backend, sb backend.Sandbox, prompt prompt) (end func()) {
	k := newAsker(e, b, sb, sb.Record.Ask.Hook, prompt)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := k.run(ctx); err != nil && ctx.Err() == nil {
			e.say("what the sandbox asks is not known: %v; agentfense policy ask %s", err, sb.Record.Name)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// run answers until the sandbox stops or ctx ends.
func (k *asker) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case q := <-k.order:
				if answer, ok := k.prompt(q.ctx, k.sb.Record.Name, q.ask); ok {
					answer.By = k.by
					k.answer(ctx, q.ask, answer)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	err := k.b.FollowAsks(ctx, k.sb.Ref(), func(asks []api.Ask) error {
		k.follow(ctx, &all, asks)
		return nil
	})
	cancel()
	all.Wait()
	return err
}

// follow begins to answer what is new, and gives up what no longer waits.
func (k *asker) follow(ctx context.Context, all *sync.WaitGroup, asks []api.Ask) {
	still := map[string]bool{}
	for _, a := range asks {
		still[a.ID] = true
		if k.waiting[a.ID] != nil {
			continue
		}
		own, cancel := context.WithCancel(ctx)
		k.waiting[a.ID] = cancel
		switch {
		case k.hook != "":
			all.Go(func() { k.runHook(own, a) })
		case k.prompt != nil:
			k.order <- putAsk{own, a}
		default:
			k.e.say("%s waits for an answer until %s: agentfense policy ask %s", present.AskLine(a), a.Until.Local().Format("15:04:05"), k.sb.Record.Name)
		}
	}
	for id, cancel := range k.waiting {
		if !still[id] {
			cancel()
			delete(k.waiting, id)
		}
	}
}

func (k *asker) answer(ctx context.Context, shown api.Ask, a api.Answer) {
	if _, err := k.e.answerAsk(ctx, k.b, k.sb.Ref(), shown, a); err != nil && !errdefs.Is(err, errdefs.NotFound) && ctx.Err() == nil {
		k.e.say("the answer does not count: %v", err)
	}
}

// hookAsk is what a hook gets. Its keys are promised in docs/ask.md.
type hookAsk struct {
	Version    int    `json:"version"`
	Sandbox    string `json:"sandbox"`
	ID         string `json:"id"`
	Mount      string `json:"mount,omitempty"` // its name; absent for the workspace
	Path       string `json:"path,omitempty"`  // begins with a slash; escaped
	Permission string `json:"permission,omitempty"`
	Need       string `json:"need,omitempty"`
	Operation  string `json:"operation,omitempty"`
	Rule       string `json:"rule,omitempty"`
	Host       string `json:"host,omitempty"`
	Program    string `json:"program,omitempty"`
	PID        int    `json:"pid,omitempty"`
	Reason     string `json:"reason,omitempty"` // of a request; escaped
	Until      string `json:"until"`
}

func newHookAsk(name string, a api.Ask) hookAsk {
	h := hookAsk{
		Version: 1, Sandbox: name, ID: a.ID, Mount: vpath.Escape(a.Mount), Host: vpath.Escape(a.Host), Operation: a.Operation, PID: a.PID,
		Rule: vpath.Escape(vpath.DecodeText(a.Rule)), Program: vpath.Escape(vpath.DecodeText(a.Program)), Until: a.Until.Format(time.RFC3339),
		Reason: vpath.Escape(vpath.DecodeText(a.Reason)),
	}
	if a.Host == "" {
		h.Path, h.Permission, h.Need = vpath.Escape("/"+vpath.DecodeText(a.Path)), a.Permission.String(), a.Need.String()
	}
	return h
}

// maxHookOutput bounds what is read of a hook, in bytes.
const maxHookOutput = 4096

// runHook has the hook answer. One that fails, or says something else, refuses.
func (k *asker) runHook(ctx context.Context, a api.Ask) {
	input, err := json.Marshal(newHookAsk(k.sb.Record.Name, a))
	if err != nil {
		k.e.say("--ask-hook: %v", err)
		return
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", k.hook)
	cmd.Stdin = bytes.NewReader(append(input, '\n'))
	cmd.Stderr = k.e.stderr
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = limitedWriter{&out, maxHookOutput}
	err = cmd.Run()
	if ctx.Err() != nil {
		return // the question is over
	}
	said := strings.Join(strings.Fields(out.String()), " ")
	if answer, ok := askHookAnswer(said, present.Choices(a, isOfProject(k.sb))); ok && err == nil {
		answer.ID, answer.By = a.ID, "hook"
		k.answer(ctx, a, answer)
		return
	}
	if err != nil {
		k.e.say("--ask-hook: %v: refused %s", err, present.AskLine(a))
	} else {
		k.e.say("--ask-hook: it said %s, want %s: refused %s", vpath.Quote(said), hookWords(present.Choices(a, isOfProject(k.sb))), present.AskLine(a))
	}
	k.answer(ctx, a, api.Answer{ID: a.ID, By: "hook"})
}

// askHookAnswer reads what a hook said.
func askHookAnswer(said string, choices []present.Choice) (a api.Answer, ok bool) {
	switch said {
	case "deny", "deny once":
		return api.Answer{}, true
	case "deny sandbox":
		return api.Answer{Scope: api.ScopeSandbox}, true
	case "allow once":
		said = "allow"
	}
	return present.AllowingAnswer(said, "allow", choices)
}

// hookWords are what a hook may say.
func hookWords(choices []present.Choice) string {
	var words []string
	for _, c := range choices {
		words = append(words, "allow"+c.Suffix)
	}
	return strings.Join(words, ", ") + ", deny or deny sandbox"
}

// limitedWriter keeps the beginning of what is written.
type limitedWriter struct {
	to  *bytes.Buffer
	max int
}

// Write drops what is too much.
func (w limitedWriter) Write(p []byte) (int, error) {
	w.to.Write(p[:min(len(p), max(0, w.max-w.to.Len()))])
	return len(p), nil
}
