// The engines of this build.
#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"

namespace atlasc {

#ifdef ATLASC_DEVICE_NAME
const Backend& built_backend() { return ckks_backend; }
#else
const Backend& built_backend() { return sim_backend; }
#endif

const Backend& backend_named(const std::string& name) {
    for (const Backend* one : {&built_backend(), &sim_backend}) {
        if (name == one->name) {
            return *one;
        }
    }
    throw Error("this build has no engine " + name,
                "this build has " + std::string(built_backend().name) + " and sim",
                "build the runtime with -DATLASC_ENGINE=" + name);
}

}  // namespace atlasc
