// Command gen compiles the lists of system calls into the filters that package seccomp
// embeds. Run it with "go generate" in internal/confine/seccomp.
package main

import (
	"log"
	"os"

	"github.com/agentfense/agentfense/internal/confine/seccomp/denylist"
)

func main() {
	for name, compile := range map[string]func(goarch string) ([]byte, error){
		"filter": denylist.Compile, "egress": denylist.CompileEgress, "sockets": denylist.CompileSockets,
	} {
		for _, goarch := range denylist.Architectures() {
			program, err := compile(goarch)
			if err != nil {
				log.Fatal(err)
			}
			if err := os.WriteFile(name+"_"+goarch+".bpf", program, 0o644); err != nil {
				log.Fatal(err)
			}
		}
	}
}
