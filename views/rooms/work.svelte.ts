// One thing at a time in a room: what is being done, how far it is, what went wrong.
import { Refusal, run, type Progress, type Running } from "./api";

export class Desk {
  progress = $state<Progress | null>(null);
  problem = $state<string | null>(null);
  #running: Running<unknown> | null = null;

  get busy(): boolean {
    return this.progress !== null;
  }

  /** The answer, or null after a refusal, which is then shown. */
  async do<Answer>(room: string, act: string, params: object): Promise<Answer | null> {
    this.cancel();
    this.problem = null;
    this.progress = { words: "starting", share: 0 };
    const running = run<Answer>(room, act, params, (progress) => {
      if (this.#running === running) this.progress = progress;
    });
    this.#running = running;
    try {
      return await running.answer;
    } catch (error) {
      if (this.#running === running) this.problem = error instanceof Refusal ? error.message : String(error);
      return null;
    } finally {
      if (this.#running === running) {
        this.#running = null;
        this.progress = null;
      }
    }
  }

  cancel(): void {
    this.#running?.cancel();
    this.#running = null;
    this.progress = null;
  }
}

/** Questions to a gateway: whether one is under way, and the sentence of a refusal. */
export class Asking {
  busy = $state(true);
  problem = $state<string | null>(null);

  async safely(work: () => Promise<void>): Promise<void> {
    [this.busy, this.problem] = [true, null];
    try {
      await work();
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
    } finally {
      this.busy = false;
    }
  }
}
