package gateway

import "github.com/agentfense/agentfense/api"

// openAPI describes the routes.
func openAPI() ([]byte, error) {
	return []byte(api.OpenAPI), nil
}
