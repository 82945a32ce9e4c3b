// The engines of this build.
#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"

namespace atlasc {

#ifdef ATLASC_CUDA_BESIDE
/// The same code as `ckks_backend`, compiled for a GPU under another name (CMakeLists.txt).
extern const Backend cuda_backend;
#endif

const std::vector<const Backend*>& built_backends() {
    static const std::vector<const Backend*> all = {
#ifdef ATLASC_DEVICE_NAME
        &ckks_backend,
#endif
#ifdef ATLASC_CUDA_BESIDE
        &cuda_backend,
#endif
        &sim_backend,
    };
    return all;
}

std::string name_in_files(const Backend& backend, const Interface& interface) {
    return backend.encrypts && !interface.engine.empty() ? interface.engine : backend.name;
}

const Backend& built_backend() { return *built_backends().front(); }

const Backend& backend_named(const std::string& name) {
    std::string names;
    for (const Backend* one : built_backends()) {
        if (name == one->name) {
            return *one;
        }
        names += (names.empty() ? "" : ", ") + std::string(one->name);
    }
    throw Error("this build has no engine " + name, "this build has " + names,
                "build the runtime with -DATLASC_ENGINE=" + name);
}

}  // namespace atlasc
