// Command gen compiles the deny list into the filters that package seccomp
// embeds. Run it with "go generate" in internal/confine/seccomp.
package main

import (
	"log"
	"os"

	"github.com/agentfense/agentfense/internal/confine/seccomp/denylist"
)

func main() {
	for _, goarch := range denylist.Architectures() {
		program, err := denylist.Compile(goarch)
		if err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile("filter_"+goarch+".bpf", program, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
