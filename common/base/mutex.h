#ifndef TENURE_COMMON_BASE_MUTEX_H_
#define TENURE_COMMON_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

// Clang's thread-safety attributes; nothing under GCC.
#if defined(__clang__)
#define TENURE_TS_ATTRIBUTE(x) __attribute__((x))
#else
#define TENURE_TS_ATTRIBUTE(x)
#endif
#define TENURE_GUARDED_BY(x) TENURE_TS_ATTRIBUTE(guarded_by(x))
#define TENURE_REQUIRES(...) \
  TENURE_TS_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define TENURE_EXCLUDES(...) TENURE_TS_ATTRIBUTE(locks_excluded(__VA_ARGS__))

namespace tenure {

// std::mutex with thread-safety attributes. absl::Mutex is not used: the
// distribution's Abseil is built without ThreadSanitizer annotations, so every
// use of it is reported as a race.
class TENURE_TS_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void Lock() TENURE_TS_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void Unlock() TENURE_TS_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a Mutex for its scope.
class TENURE_TS_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex)
      TENURE_TS_ATTRIBUTE(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() TENURE_TS_ATTRIBUTE(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable over Mutex. Waits may wake early: loop on a condition.
class CondVar {
 public:
  void Wait(Mutex& mutex) TENURE_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }

  // Returns false when `timeout` passed without a wake-up.
  bool WaitFor(Mutex& mutex, absl::Duration timeout) TENURE_REQUIRES(mutex) {
    // Clamped: a wait beyond a day is woken early, which the caller's loop
    // allows, and an infinite one would overflow.
    const auto bounded = absl::ToChronoNanoseconds(
        timeout > absl::Hours(24) ? absl::Hours(24) : timeout);
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool woken =
        cv_.wait_for(lock, bounded) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }

  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace tenure

#endif  // TENURE_COMMON_BASE_MUTEX_H_
