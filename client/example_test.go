//go:build linux

package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/agentfense/agentfense/client"
)

// try runs an example on a directory of its own, and shows its error.
func try(example func(ctx context.Context, dir string) error) {
	dir, err := os.MkdirTemp("", "repository")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.MkdirAll(filepath.Join(dir, "src"), 0o755)
	}
	for name, content := range map[string]string{"main.sh": "echo hello\n", "README.md": "# shop\n", "src/lib.sh": "lib\n", ".env": "TOKEN=hunter2\n"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	if err == nil {
		err = example(context.Background(), dir)
	}
	if err != nil {
		fmt.Println(err)
	}
}

func Example() {
	try(func(ctx context.Context, dir string) error {
		box, err := client.FromLocal(ctx, dir)
		if err != nil {
			return err
		}
		defer box.Close()

		result, err := box.Run(ctx, "sh main.sh; cat .env; echo broken >main.sh", client.WithTimeout(time.Minute))
		if err != nil {
			return err
		}
		fmt.Printf("%s%s", result.Stdout, result.Stderr)
		return nil
	})
	// Output:
	// hello
	// cat: .env: No such file or directory
	// /bin/sh: 1: cannot create main.sh: Permission denied
}

func ExampleSandbox_Apply() {
	try(func(ctx context.Context, dir string) error {
		box, err := client.FromLocal(ctx, dir, client.WithPreset("development"))
		if err != nil {
			return err
		}
		defer box.Close()

		if _, err := box.Run(ctx, "echo '# better' >README.md; echo new >new.txt; rm src/lib.sh"); err != nil {
			return err
		}
		changes, err := box.Diff(ctx)
		if err != nil {
			return err
		}
		for _, change := range changes {
			fmt.Println(change.Status, change.Path, len(change.Patch) > 0)
		}
		if _, err := box.Discard(ctx, "src"); err != nil {
			return err
		}
		would, err := box.ApplyDryRun(ctx)
		if err != nil {
			return err
		}
		did, err := box.Apply(ctx, "README.md")
		if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, "README.md"))
		fmt.Println(would.AppliedCount, did.AppliedCount, string(text))
		return err
	})
	// Output:
	// modified README.md true
	// added new.txt true
	// deleted src/lib.sh true
	// 2 1 # better
}

func ExampleSandbox_Restore() {
	try(func(ctx context.Context, dir string) error {
		box, err := client.FromLocal(ctx, dir, client.WithPreset("development"))
		if err != nil {
			return err
		}
		defer box.Close()

		if _, err := box.Run(ctx, "echo one >README.md"); err != nil {
			return err
		}
		if _, err := box.Snapshot(ctx, "first"); err != nil {
			return err
		}
		if _, err := box.Run(ctx, "echo two >README.md", client.WithCheckpoint()); err != nil {
			return err
		}
		forks, err := box.Fork(ctx, []string{"try"}, client.ForkOptions{Snapshot: "first"})
		if err != nil {
			return err
		}
		defer forks[0].Close()
		changes, err := box.Compare(ctx, forks[0].At(""), box.At(""))
		if err != nil {
			return err
		}
		fmt.Printf("%s\n%s", changes[0].Path, changes[0].Patch)
		if err := box.Stop(ctx); err != nil {
			return err
		}
		back, err := box.Restore(ctx, "first")
		if err != nil {
			return err
		}
		fmt.Println(back.Snapshot.Name, back.Kept.Name)
		return nil
	})
	// Output:
	// README.md
	// diff --git a/README.md b/README.md
	// --- a/README.md
	// +++ b/README.md
	// @@ -1 +1 @@
	// -one
	// +two
	// s1 s3
}

func ExampleSandbox_SetPolicy() {
	try(func(ctx context.Context, dir string) error {
		source := client.PermissionRule{Pattern: "/src/**", Permission: client.Write, Priority: 20}
		box, err := client.FromLocal(ctx, dir, client.WithPreset("agent-safe"), client.WithPermissions(source))
		if err != nil {
			return err
		}
		defer box.Close()

		why, err := box.Explain(ctx, "src/lib.sh")
		if err != nil {
			return err
		}
		fmt.Println(why.Permission, why.Rule.Pattern)

		readOnly := client.Policy{Preset: "read-only"}
		if err := box.SetPolicy(ctx, readOnly.With(client.PermissionRule{Pattern: "*.md", Permission: client.None, Priority: 10})); err != nil {
			return err
		}
		result, err := box.Run(ctx, "cat README.md")
		if err != nil {
			return err
		}
		for _, denied := range result.Denied {
			fmt.Println(denied.Operation, denied.Path, "by", denied.Rule)
		}
		return nil
	})
	// Output:
	// write /src/**
	// open README.md by *.md
}

func ExamplePolicy() {
	try(func(ctx context.Context, dir string) error {
		policy := client.Policy{Preset: "read-only"}.Hide("*.md").Write("src/")
		if _, err := policy.WriteTo(os.Stdout); err != nil {
			return err
		}
		box, err := client.FromLocal(ctx, dir, client.WithPolicy(policy))
		if err != nil {
			return err
		}
		defer box.Close()

		result, err := box.Run(ctx, "ls; echo x >src/new")
		if err != nil {
			return err
		}
		fmt.Printf("%s", result.Stdout)
		for _, change := range result.Changed {
			fmt.Println(change.Kind, change.Path)
		}
		return nil
	})
	// Output:
	// version: 1
	// preset: read-only
	// rules:
	//     - pattern: '*.md'
	//       permission: none
	//       priority: 100
	//     - pattern: src/
	//       permission: write
	//       priority: 20
	// main.sh
	// src
	// created src/new
}

func ExampleSandbox_Audit() {
	try(func(ctx context.Context, dir string) error {
		box, err := client.FromLocal(ctx, dir)
		if err != nil {
			return err
		}
		defer box.Close()

		if _, err := box.Run(ctx, "cat .env"); err != nil {
			return err
		}
		for event, err := range box.Audit(ctx, client.WithEvents("permission_denied")) {
			if err != nil {
				return err
			}
			var denied struct{ Path, Rule string }
			if err := json.Unmarshal(event.Record, &denied); err != nil {
				return err
			}
			fmt.Println(event.Event, denied.Path, denied.Rule)
		}
		stats, err := box.Stats(ctx)
		if err != nil {
			return err
		}
		fmt.Println(stats.Execs, stats.DeltaBytes)
		return nil
	})
	// Output:
	// permission_denied /.env **/.env
	// 0 0
}

func ExampleSandbox_ExecStream() {
	try(func(ctx context.Context, dir string) error {
		box, err := client.FromLocal(ctx, dir)
		if err != nil {
			return err
		}
		defer box.Close()

		var complaints strings.Builder
		result, err := box.ExecStream(ctx, "cat; echo two >&2; exit 3", os.Stdout, &complaints, client.WithStdin(strings.NewReader("one\n")))
		if err != nil {
			return err
		}
		fmt.Printf("%s%d\n", complaints.String(), result.ExitCode)
		return nil
	})
	// Output:
	// one
	// two
	// 3
}

func ExampleSandbox_Attach() {
	try(func(ctx context.Context, dir string) error {
		box, err := client.FromLocal(ctx, dir)
		if err != nil {
			return err
		}
		defer box.Close()

		x, err := box.Attach(ctx, []string{"sh", "-c", "stty size; read answer; echo got $answer; exit 4"}, client.WithTerminal(24, 80))
		if err != nil {
			return err
		}
		defer x.Close()
		lines := bufio.NewScanner(x.Stdout)
		for lines.Scan() {
			fmt.Println(lines.Text())
			if lines.Text() == "24 80" {
				if _, err := io.WriteString(x.Stdin, "yes\n"); err != nil {
					return err
				}
			}
		}
		result, err := x.Wait()
		if err != nil {
			return err
		}
		fmt.Println(result.ExitCode)
		return nil
	})
	// Output:
	// 24 80
	// yes
	// got yes
	// 4
}

func ExampleSandbox_ExecDetached() {
	try(func(ctx context.Context, dir string) error {
		box, err := client.FromLocal(ctx, dir)
		if err != nil {
			return err
		}
		defer box.Close()

		id, err := box.ExecDetached(ctx, "echo one; until test -e /tmp/go; do sleep 0.1; done; echo two")
		if err != nil {
			return err
		}
		execs, err := box.Execs(ctx)
		if err != nil {
			return err
		}
		fmt.Println(len(execs), execs[0].ExecID == id, execs[0].ExitCode == nil)

		if _, err := box.Run(ctx, "touch /tmp/go"); err != nil {
			return err
		}
		resumed, err := box.Resume(ctx, id, client.WithStdout(os.Stdout))
		if err != nil {
			return err
		}
		_, err = resumed.Wait()
		return err
	})
	// Output:
	// 1 true true
	// one
	// two
}

func ExampleSandbox_Session() {
	try(func(ctx context.Context, dir string) error {
		box, err := client.FromLocal(ctx, dir)
		if err != nil {
			return err
		}
		defer box.Close()

		shell, err := box.Session(ctx, client.WithEnv(map[string]string{"name": "you"}))
		if err != nil {
			return err
		}
		defer shell.Close(ctx)
		if _, err := shell.Exec(ctx, "cd src; greeting=hello"); err != nil {
			return err
		}
		result, err := shell.Exec(ctx, `echo "$greeting $name"; basename "$PWD"`)
		if err != nil {
			return err
		}
		fmt.Printf("%s", result.Stdout)
		return nil
	})
	// Output:
	// hello you
	// src
}

func ExampleSandboxFiles() {
	try(func(ctx context.Context, dir string) error {
		box, err := client.FromLocal(ctx, dir, client.WithPreset("development"))
		if err != nil {
			return err
		}
		defer box.Close()

		if err := box.Files.Write(ctx, "output/data.txt", strings.NewReader("text\n")); err != nil {
			return err
		}
		entry, err := box.Files.Stat(ctx, "output/data.txt")
		if err != nil {
			return err
		}
		fmt.Println(entry.Permission, entry.SizeBytes, entry.Changed)

		return fs.WalkDir(box.Files.FS(ctx), ".", func(name string, _ fs.DirEntry, err error) error {
			fmt.Println(name)
			return err
		})
	})
	// Output:
	// write 5 true
	// .
	// README.md
	// main.sh
	// output
	// output/data.txt
	// src
	// src/lib.sh
}

func ExampleSandboxFiles_Watch() {
	try(func(ctx context.Context, dir string) error {
		box, err := client.FromLocal(ctx, dir, client.WithPreset("development"))
		if err != nil {
			return err
		}
		defer box.Close()

		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		changes, err := box.Files.Watch(ctx, "src", true)
		if err != nil {
			return err
		}
		if _, err := box.Run(ctx, "rm src/lib.sh"); err != nil {
			return err
		}
		for change, err := range changes {
			if err == nil {
				fmt.Println(change.Kind, change.Path)
			}
			return err
		}
		return nil
	})
	// Output:
	// deleted src/lib.sh
}

func ExampleClient() {
	try(func(ctx context.Context, dir string) error {
		c, err := client.New(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		repository, err := c.LinkCodebase(ctx, dir)
		if err != nil {
			return err
		}
		defer c.DeleteCodebase(ctx, repository.ID)

		var all sync.WaitGroup
		outputs := make([]string, 4)
		for i := range outputs {
			all.Go(func() {
				box, err := c.CreateSandbox(ctx, repository.ID, client.WithPreset("read-only"), client.WithResources(client.ResourceLimits{PIDsLimit: 50}))
				if err != nil {
					outputs[i] = err.Error()
					return
				}
				defer box.Close()
				result, err := box.Run(ctx, "sh main.sh")
				if err != nil {
					outputs[i] = err.Error()
					return
				}
				outputs[i] = string(result.Stdout)
			})
		}
		all.Wait()
		fmt.Print(strings.Join(outputs, ""))
		return nil
	})
	// Output:
	// hello
	// hello
	// hello
	// hello
}

func ExampleClient_UploadTree() {
	try(func(ctx context.Context, dir string) error {
		c, err := client.New(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		base, err := c.CreateCodebase(ctx, "shop", "")
		if err != nil {
			return err
		}
		defer c.DeleteCodebase(ctx, base.ID)
		if _, err := c.UploadTree(ctx, base.ID, dir, "*.md"); err != nil {
			return err
		}
		files, err := c.ListFiles(ctx, base.ID, "", true)
		for _, file := range files {
			fmt.Println(file.Path, file.Mode)
		}
		if err != nil {
			return err
		}
		return c.DownloadFile(ctx, base.ID, "main.sh", os.Stdout)
	})
	// Output:
	// main.sh -rw-r--r--
	// src drwxr-xr-x
	// src/lib.sh -rw-r--r--
	// echo hello
}

func ExampleError() {
	try(func(ctx context.Context, dir string) error {
		box, err := client.FromLocal(ctx, dir)
		if err != nil {
			return err
		}
		defer box.Close()

		_, err = box.Run(ctx, "sleep 1000", client.WithTimeout(100*time.Millisecond))
		fmt.Println(errors.Is(err, client.ErrTimeout))
		_, err = box.Files.Read(ctx, ".env")
		fmt.Println(errors.Is(err, client.ErrNotFound))
		err = box.Files.Write(ctx, "main.sh", strings.NewReader("x"))
		fmt.Println(errors.Is(err, client.ErrDenied), err)
		return nil
	})
	// Output:
	// true
	// true
	// true write main.sh: Permission denied
}
